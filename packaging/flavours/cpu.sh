# The CPU image: nothing but the usual ladder (serve: auto, the first GPU that there is, then the CPU).
