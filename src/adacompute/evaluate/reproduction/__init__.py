"""The paper's experiment on recordings of our own: its tables, its statements, beside what is found here."""
