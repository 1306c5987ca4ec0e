"""The rules of the audit: pure, one module per kind of trouble, no SQL.  What they look at is :mod:`marathond.core.audit.facts`."""
