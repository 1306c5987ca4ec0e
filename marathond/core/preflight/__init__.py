"""What ``marathonctl preflight`` concludes from what its probes saw: observation in, row out.

Owns the codes, the five states and the words of every row.  Must not know how anything was looked at.
"""
