"""The watcher that proves it can see: a scratch ledger, one planted fault per rule, and whether what it counts by is alive at all."""
