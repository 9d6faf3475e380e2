"""Tests. Each process uses one thread for linear algebra, as the program does: many of them share few cores."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
