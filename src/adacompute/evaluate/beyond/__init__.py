"""What the paper should have shown: numbers from one held-out evaluation of every policy. No drawing."""
