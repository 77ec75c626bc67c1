"""Sockets, client connections, the ASGI application, and several worker processes on one port."""
