"""`penstock log`: what a broker's log on disk holds, what of it is damaged, and how it is mended."""
