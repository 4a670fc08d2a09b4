"""What bench/run is made of: contestants, cases, one measured exchange, statistics, and the report."""
