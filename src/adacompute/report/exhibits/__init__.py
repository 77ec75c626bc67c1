"""The report's exhibits, one file each: numbers, figure and text. No HTML."""
