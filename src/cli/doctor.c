/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

/* The findings are printed even if a training with these arguments would be refused. */
static snug_status make_doctor(struct cli *cli, char **text) {
    snug_doctor *doctor;
    const snug_status status = snug_doctor_create(cli->args, &doctor);
    snug_status printed = SNUG_OK;
    if (snug_args_rank(cli->args) > 0) { /* rank 0 prints what all ranks found */
        snug_doctor_destroy(doctor);
        return SNUG_OK;
    }
    if (doctor) printed = cli->json ? snug_doctor_json(doctor, text) : snug_doctor_text(doctor, text);
    snug_doctor_destroy(doctor);
    return status == SNUG_OK ? printed : status;
}

int command_doctor(int argc, char **argv) { return cli_report(argc, argv, make_doctor); }
