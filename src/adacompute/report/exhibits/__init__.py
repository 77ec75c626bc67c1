"""The contents of the report's sections: numbers, figures and text, but no HTML; one file per topic."""
