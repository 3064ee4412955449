// environment.c — what Neuron's runtime and compiler read from the environment, as a target says
// it.
//
// What the user has set stays. What a target before this one has set does not: a reduced
// configuration is a target of its own, and has its own flags and cores.
#include "backend/pjrt/pjrt.h"

#include <ration/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct variable {
    const char *name;
    char set[160]; // by a target; "": none has
} variable;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static variable visible = {"NEURON_RT_VISIBLE_CORES", ""}, flags = {"NEURON_CC_FLAGS", ""};

// "": it is to be as it was before any target.
static void set(variable *v, const char *value) {
    const char *now = getenv(v->name);
    bool ours = v->set[0] && now && strcmp(now, v->set) == 0;
    if (now && !ours) return;
    if (value[0])
        setenv(v->name, value, 1);
    else if (ours)
        unsetenv(v->name);
    snprintf(v->set, sizeof v->set, "%s", value);
}

static void add_flag(char *text, size_t bytes, const char *name, const char *value) {
    size_t used = strlen(text);
    if (value[0]) snprintf(text + used, bytes - used, "%s--%s=%s", used ? " " : "", name, value);
}

void rn_pjrt_set_environment(const rn_pjrt_target *target) {
    char text[160] = "", cores[16], level[12];
    if (strcmp(target->plugin, "neuron") != 0) return;
    const char *count = getenv("NEURON_CORES");
    long number = count ? strtol(count, NULL, 10) : 0;
    snprintf(cores, sizeof cores, "%s", target->cores);
    if (!cores[0] && number == 1) snprintf(cores, sizeof cores, "0");
    if (!cores[0] && number > 1 && number < 4096)
        snprintf(cores, sizeof cores, "0-%ld", number - 1);
    snprintf(level, sizeof level, "%d", target->level > 0 ? target->level : 1);
    add_flag(text, sizeof text, "model-type",
             target->model_type[0] ? target->model_type : "transformer");
    add_flag(text, sizeof text, "optlevel", level);
    add_flag(text, sizeof text, "auto-cast", target->auto_cast);
    add_flag(text, sizeof text, "auto-cast-type", target->auto_cast_type);
    pthread_mutex_lock(&lock);
    set(&visible, cores);
    set(&flags, text);
    const char *now = getenv(visible.name);
    rn_log(RN_LOG_INFO, "xla", "cores %s, compiler's flags %s", now ? now : "all",
           getenv(flags.name));
    pthread_mutex_unlock(&lock);
}
