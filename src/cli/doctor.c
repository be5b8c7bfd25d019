/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

static snug_status make_doctor(struct cli *cli, char **text) {
    snug_doctor *doctor;
    snug_status status = snug_doctor_create(cli->args, &doctor);
    if (status == SNUG_OK) status = cli->json ? snug_doctor_json(doctor, text) : snug_doctor_text(doctor, text);
    snug_doctor_destroy(doctor);
    return status;
}

int command_doctor(int argc, char **argv) { return cli_report(argc, argv, make_doctor); }
