"""`ask` and `Asker`: the gateway as a function call, without a socket."""
