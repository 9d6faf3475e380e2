"""All cases of the torture suite."""

from tests.torture import faults, fuzz, growth, hostile, index_kills, processes, write_steps

CASES = (
    *index_kills.CASES,
    *processes.CASES,
    *write_steps.CASES,
    *faults.CASES,
    *fuzz.CASES,
    *hostile.CASES,
    *growth.CASES,
)
