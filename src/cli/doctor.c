/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static snug_status put_doctor(struct cli *cli, const snug_doctor *doctor) {
    char *text = NULL;
    snug_status status = cli->json ? snug_doctor_json(doctor, &text) : snug_doctor_text(doctor, &text);
    if (status == SNUG_OK) status = cli_put_lines(cli, text);
    free(text);
    return status;
}

int command_doctor(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        snug_doctor *doctor = NULL;
        snug_status status = snug_doctor_create(cli.args, &doctor);
        if (status == SNUG_OK) status = put_doctor(&cli, doctor);
        code = cli_finish(&cli, status);
        snug_doctor_destroy(doctor);
    }
    cli_close(&cli);
    return code;
}
