# The CUDA image: the driver comes from the host (NVIDIA's container toolkit). Without one the ladder says so and goes on to the CPU.
export NVIDIA_DRIVER_CAPABILITIES="${NVIDIA_DRIVER_CAPABILITIES:-compute,utility}"
export RATION_DEVICE="${RATION_DEVICE:-cuda:0,cpu}"
