"""The practice provider (floor 2): a scripted stand-in for a model provider's Responses API, for demos and tests without a model.

Owns the scripts, what is answered to which request, the record of what was asked, and the HTTP server.  Knows nothing of ledger,
engine or flow: to them it is a provider like any other, behind a base URL and a key.
"""
