# All of it is native: see _scanner.pxd.
