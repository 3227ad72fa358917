"""Signal and noise of the policy gradient, and its trend over the variance of rewards."""
