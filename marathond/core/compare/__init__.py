"""The comparison of arms: pure, by numpy and scipy.  Imported by ``report`` alone; daemon and ``status`` never load it."""
