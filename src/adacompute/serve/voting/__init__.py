"""The waves of one request: what is drawn, how it is read, whether there is anything to vote on."""
