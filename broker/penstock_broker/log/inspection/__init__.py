"""What `penstock log` shows and repairs, without a broker."""
