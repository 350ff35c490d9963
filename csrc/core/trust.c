/* The known-answer check. The cases are an operation's; the verdicts are a context's. */
#include "core/trust.h"

#include "base/alloc.h"
#include "base/fault.h"
#include "core/plans.h"

#include <string.h>

/* The memory of one case: its request and plan, its frames, and its results twice. */
struct trial {
    struct hzb_known known;
    void *plan;
    uint32_t *words;
    char *results[2]; /* of the device and of the processor */
    uint64_t result_bytes;
    struct hzb_output outputs[2][HZB_KNOWN_OUTPUTS];
};

static enum hzb_status make_trial(const struct hzb_op *op, struct trial *trial,
                                  struct hzb_error *err)
{
    struct hzb_known *known = &trial->known;
    for (int i = 0; i < known->output_count; i++)
        trial->result_bytes += known->frames * known->output_bytes[i];
    uint64_t texels = (uint64_t)known->frames * known->width * known->height;
    trial->plan = hzb_calloc(1, op->plan_bytes);
    trial->words = hzb_calloc(texels, sizeof *trial->words);
    for (int side = 0; side < 2; side++)
        trial->results[side] = hzb_calloc(trial->result_bytes, 1);
    if (!trial->plan || !trial->words || !trial->results[0] || !trial->results[1])
        return hzb_fail_no_memory(err, texels * sizeof *trial->words + 2 * trial->result_bytes);
    op->fill_known(known, trial->words);
    for (int side = 0; side < 2; side++) {
        char *data = trial->results[side];
        for (int i = 0; i < known->output_count; i++) {
            trial->outputs[side][i] =
                (struct hzb_output){.data = data, .frame_bytes = known->output_bytes[i]};
            data += known->frames * known->output_bytes[i];
        }
    }
    return HZB_OK;
}

static enum hzb_status run_trial(struct hzb_context *context, const struct hzb_op *op,
                                 struct trial *trial, const struct hzb_hooks *hooks, bool *right,
                                 struct hzb_error *err)
{
    const struct hzb_known *known = &trial->known;
    const struct hzb_frames frames = {
        .data = (const char *)trial->words,
        .scalar = HZB_SCALAR_F32,
        .leading_axes = 1,
        .leading_shape = {known->frames},
        .leading_strides = {(int64_t)known->width * known->height * 4},
        .count = known->frames,
        .height = known->height,
        .width = known->width,
        .row_stride = (int64_t)known->width * 4,
        .column_stride = 4,
    };
    const struct hzb_job job = {
        .op = op,
        .request = known->request,
        .plan = trial->plan,
        .frames = &frames,
        .outputs = trial->outputs[0],
    };
    enum hzb_status status = hzb_job_plan(context, &job, err);
    if (!status)
        status = hzb_job_run_locked(context, &job, hooks, err);
    /* Nobody builds these frames again. */
    hzb_plans_forget_locked(context, op, trial->plan, known->frames);
    if (!status)
        status = op->run_cpu(known->request, &frames, trial->outputs[1], hooks, err);
    if (!status)
        *right = !hzb_fault_due(HZB_FAULT_KNOWN_ANSWER) &&
                 memcmp(trial->results[0], trial->results[1], trial->result_bytes) == 0;
    return status;
}

static void free_trial(struct trial *trial)
{
    hzb_free(trial->known.request);
    hzb_free(trial->plan);
    hzb_free(trial->words);
    hzb_free(trial->results[0]);
    hzb_free(trial->results[1]);
    hzb_free(trial);
}

/* Make, run and free it. */
static enum hzb_status try_kernel(struct hzb_context *context, const struct hzb_job *job,
                                  const struct hzb_hooks *hooks, bool *right, struct hzb_error *err)
{
    const struct hzb_op *op = job->op;
    struct trial *trial = hzb_calloc(1, sizeof *trial);
    void *request = hzb_calloc(1, op->request_bytes);
    if (!trial || !request) {
        hzb_free(trial);
        hzb_free(request);
        return hzb_fail_no_memory(err, sizeof *trial + op->request_bytes);
    }
    trial->known.request = request;
    op->known(job->plan, &trial->known);
    enum hzb_status status = make_trial(op, trial, err);
    if (!status)
        status = run_trial(context, op, trial, hooks, right, err);
    if (!status && !*right) {
        context->distrusted |= op->distrust(job->plan);
        context->untold |= op->distrust(job->plan);
    }
    free_trial(trial);
    return status;
}

/* The arrays have their memory already. */
static enum hzb_status plan_anew(struct hzb_context *context, const struct hzb_job *job,
                                 struct hzb_error *err)
{
    enum hzb_status status = hzb_job_plan(context, job, err);
    return status ? status : hzb_job_check_memory(context, job, 0, err);
}

enum hzb_status hzb_trust_locked(struct hzb_context *context, const struct hzb_job *job,
                                 const struct hzb_hooks *hooks, struct hzb_error *err)
{
    for (;;) {
        int key = job->op->known_key(job->plan);
        if (key < 0)
            return HZB_OK;
        /* Another build may have found the kernel wrong since this one was planned. */
        bool right = !(job->op->distrust(job->plan) & context->distrusted);
        uint32_t *known_right = &context->known_right[key / 32], bit = 1u << key % 32;
        if (right && *known_right & bit)
            return HZB_OK;
        enum hzb_status status = HZB_OK;
        if (right)
            status = try_kernel(context, job, hooks, &right, err);
        if (!status && right)
            *known_right |= bit;
        else if (!status)
            status = plan_anew(context, job, err);
        if (status)
            return status;
    }
}
