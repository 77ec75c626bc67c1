"""One page that says what a budget buys on a pool, with its tables and figures beside it. Knows no policy."""
