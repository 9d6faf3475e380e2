"""All cases of the torture suite."""

from tests.torture import index_kills

CASES = (*index_kills.CASES,)
