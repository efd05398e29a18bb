"""The rules that judge the lag of a subscription: pure, so that the observer and the lag job give the same answer."""
