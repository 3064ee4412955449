# The Neuron image, whatever it is built on (RUN_BASE: Debian with libneuronxla, or one of Amazon's deep learning containers): the same ladder,
# the same settings, the same log. The plugin is where pip put it; a folder of another name is told by NEURON_LIBRARY_PATH.
for plugin in /opt/aws/neuron/lib/python3*/site-packages /opt/conda/lib/python3*/site-packages \
    /usr/local/lib/python3*/site-packages /usr/local/lib/python3*/dist-packages; do
    [ -n "${NEURON_LIBRARY_PATH:-}" ] || [ ! -r "$plugin/libneuronxla/libneuronpjrt.so" ] ||
        export NEURON_LIBRARY_PATH="$plugin/libneuronxla/libneuronpjrt.so"
done
export RATION_DEVICE="${RATION_DEVICE:-neuron:0-1,neuron:0,cpu}"
