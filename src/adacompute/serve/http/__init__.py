"""The door: sockets, one client's connection, the ASGI application, several processes at one port."""
