"""Networks under the contract: torch inside, NumPy outside."""
