"""The two-host lab and what tests need around it: processes, counters, proof of carriage, a case runner."""
