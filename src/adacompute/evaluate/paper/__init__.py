"""What the paper shows of a recording: the numbers of its tables and figures. Knows nothing of drawing."""
