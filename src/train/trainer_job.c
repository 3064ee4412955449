// trainer_job.c — a trainer of any forward pass that has a loss of its own: image networks.
#include "train/trainer.h"

#include "train/train_recipe.h"

#include <ration/profile.h>

#include <math.h>
#include <stdio.h>

uint32_t rn_trainer_phase_of(const rn_trainer *t, uint32_t shape, bool evaluates) {
    uint32_t shapes = t->job ? t->job->shapes : 1;
    if (evaluates) return RN_TRAINER_SAVE + shapes + shape;
    return shape == 0 ? RN_TRAINER_STEP : RN_TRAINER_SAVE + shape;
}

static rn_status make_recipes(rn_trainer *t, uint32_t shape, const rn_train_options *train,
                              rn_recipe *step, rn_recipe *evaluate) {
    rn_forward forward = {0};
    char names[2][sizeof step->name];
    RN_TRY(t->job->forward(t->job->self, shape, &forward));
    forward.activations = t->options.activations;
    RN_TRY(rn_train_recipe(forward, t->options.batch, train, step));
    RN_TRY(rn_evaluate_recipe(forward, t->options.batch, &(rn_train_share){0}, evaluate));
    snprintf(names[0], sizeof names[0], "step %s", t->job->names[shape]);
    snprintf(names[1], sizeof names[1], "evaluate %s", t->job->names[shape]);
    memcpy(step->name, names[0], sizeof names[0]);
    memcpy(evaluate->name, names[1], sizeof names[1]);
    return RN_OK;
}

rn_status rn_trainer_make_job_plan(rn_trainer *t) {
    rn_recipe steps[RN_TRAINER_SHAPES] = {0}, evaluates[RN_TRAINER_SHAPES] = {0};
    rn_train_options train = rn_trainer_step_options(t);
    rn_status s = RN_OK;
    if (t->options.batch == 0) return rn_fail(RN_INVALID, "a step needs at least one sample");
    if (t->job->shapes < 1 || t->job->shapes > RN_TRAINER_SHAPES)
        return rn_fail(RN_INVALID, "%u shapes of batches", t->job->shapes);
    if (t->scaled)
        return rn_fail(RN_UNSUPPORTED, "activations of image networks are f32 or bf16 in training");
    for (uint32_t i = 0; s == RN_OK && i < t->job->shapes; i++)
        s = make_recipes(t, i, &train, &steps[i], &evaluates[i]);
    if (s == RN_OK) s = rn_trainer_plan_phases(t, steps, evaluates, t->job->shapes);
    for (uint32_t i = 0; i < RN_TRAINER_SHAPES; i++) {
        rn_recipe_destroy(&steps[i]);
        rn_recipe_destroy(&evaluates[i]);
    }
    return s;
}

static rn_status set_inputs(rn_session *s, const rn_trainer_input *inputs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        RN_TRY(rn_session_set(s, inputs[i].name, inputs[i].data, inputs[i].bytes));
    return RN_OK;
}

static rn_status run(rn_session *s, const char *name) {
    rn_profile_begin(rn_profile_name(name));
    rn_status status = rn_session_run(s, 0);
    rn_profile_end();
    return status;
}

rn_status rn_trainer_step_job(rn_trainer *t, uint32_t shape, const rn_trainer_input *inputs,
                              uint32_t count, double rate, float *out_loss) {
    rn_session *s = rn_program_session(t->run, rn_trainer_phase_of(t, shape, false));
    *out_loss = 0;
    t->session = s;
    t->last =
        (rn_step_info){.effect = RN_STEP_TAKEN, .targets = t->options.batch, .loss_factor = 1};
    RN_TRY(set_inputs(s, inputs, count));
    RN_TRY(rn_session_set_scalar(s, "rate", rate));
    RN_TRY(rn_trainer_set_scalars(t, s));
    RN_TRY(run(s, "train step"));
    RN_TRY(rn_trainer_look_back(t));
    t->batches++;
    *out_loss = t->last.loss;
    return RN_OK;
}

rn_status rn_trainer_evaluate_job(rn_trainer *t, uint32_t shape, const rn_trainer_input *inputs,
                                  uint32_t count, float *out_loss) {
    rn_session *s = rn_program_session(t->run, rn_trainer_phase_of(t, shape, true));
    *out_loss = 0;
    if (!s) return rn_fail(RN_INVALID, "the trainer was made without evaluations");
    RN_TRY(set_inputs(s, inputs, count));
    RN_TRY(run(s, "evaluate"));
    return rn_session_get(s, "loss", out_loss, sizeof *out_loss);
}
