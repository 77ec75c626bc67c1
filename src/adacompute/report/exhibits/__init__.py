"""The contents of the report's sections, one file each: numbers, figures and text, but no HTML."""
