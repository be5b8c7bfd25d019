/* SPDX-License-Identifier: Apache-2.0 */
/* snug generate and snug chat: what they print, and how a chat in a terminal is led. */
#include <pty.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down
#define CHAT SNUG_SOURCE_DIR "/examples/demo/chat"

static void make_model(struct fixture *f) {
    free(run_well(f,
                  "train --config_name " CHAT " --tokenizer_name " CHAT " --train_file " CHAT
                  "/plain.jsonl --assistant_only_loss --output_dir out --max_steps 30 --per_device_train_batch_size 16 "
                  "--learning_rate 4e-3 --save_strategy no --threads 1 --max_seq_length 64"));
}

/* What a shell's command prints, in the test's folder. */
static char *shell(const struct fixture *f, const char *command, int code) {
    char all[10000];
    snprintf(all, sizeof all, "cd '%s' && %s", f->folder, command);
    FILE *pipe = popen(all, "r");
    char *text = calloc(1, 1 << 16);
    assert_non_null(pipe);
    text[fread(text, 1, (1 << 16) - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    if (WEXITSTATUS(status) != code) fail_msg("%s: exit code %d: %s", command, WEXITSTATUS(status), text);
    return text;
}

static char *snug(const struct fixture *f, const char *before, const char *words, int code) {
    char command[8192];
    snprintf(command, sizeof command, "%s '%s' %s 2>&1", before, program_path(), words);
    return shell(f, command, code);
}

FIXTURE_TEST(test_generate_prints) {
    make_model(f);
    char *streamed = run_well(f, "generate out --prompt What --max_new_tokens 6 --threads 1");
    json_t *json = run_json(f, "generate out --prompt What --max_new_tokens 6 --threads 1 --json");
    assert_int_equal(strncmp(streamed, json_string_value(json_object_get(json, "text")), strlen(streamed) - 1), 0);
    assert_int_equal(streamed[strlen(streamed) - 1], '\n');
    assert_string_equal(json_string_value(json_object_get(json, "prompt")), "What");
    const size_t count = json_array_size(json_object_get(json, "token_ids"));
    assert_true(count && count <= 6 && count == json_array_size(json_object_get(json, "log_probabilities")));
    assert_null(json_object_get(json, "score"));
    json_t *beams = run_json(f, "generate out --prompt What --max_new_tokens 6 --threads 1 --num_beams 2 --json");
    assert_true(json_real_value(json_object_get(beams, "score")) < 0);
    assert_int_equal(json_integer_value(json_object_get(json, "num_beams")), 1);
    assert_int_equal(json_integer_value(json_object_get(beams, "num_beams")), 2);
    char *lines =
        snug(f, "printf 'What\\nTell\\n' |", "generate out --max_new_tokens 4 --threads 1 --log_level error", 0);
    assert_non_null(strchr(lines, '\n'));
    char *plan = run_well(f, "generate out --prompt What --max_new_tokens 100 --num_beams 4 --plan_only");
    assert_contains(plan, "Cache      1152 bytes a token, 147456 a sequence, 147456 a further beam");
    char *same = run_well(f, "plan out --task generate --prompt What --max_new_tokens 100 --num_beams 4");
    *strstr(plan, "Memory") = '\0'; /* of the process, which differs */
    assert_int_equal(strncmp(plan, same, strlen(plan)), 0);
    free(same);
    same =
        run_well(f, "plan --task=generate out --max_seq_length 64 --max_new_tokens 16 --per_device_eval_batch_size 3");
    assert_contains(same, "Prompts    3 at a time, 1 beams each, 64 tokens at most with their answers");
    assert_contains(same, "Cache      1152 bytes a token, 73728 a sequence");
    free(same);
    write_text(f, "prompts.txt", "What\nTell me\n");
    same = run_well(f, "plan out --task generate --test_file prompts.txt --max_new_tokens 16");
    assert_contains(same, "Prompts    ");
    free(same);
    same = run_well(f, "plan out --task generate --gpu H100 --max_seq_length 64");
    assert_contains(same, "Prompts    8 at a time");
    free(same);
    json_t *planned = run_json(f, "generate out --prompt What --max_new_tokens 100 --plan_only --json");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(planned, "cache"), "bytes")), 147456);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(planned, "requested"), "beams")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(planned, "requested"), "prompts")), 1);
    assert_int_equal(run(f, "generate out --prompt What --memory_budget 1MiB"), 3);
    char *refused = output_of(f, "stderr");
    assert_contains(refused, "one prompt at a time, with its answer");
    assert_int_equal(run(f, "generate --prompt What"), 2);
    char *empty = snug(f, "printf 'What\\n' |", "generate out --prompt '' --threads 1", 1); /* no token begins a text */
    assert_contains(empty, "--prompt: the prompt has no token to begin an answer with");
    free(empty);
    free(run_well(f, "generate out --prompt What_is_gold? --max_new_tokens 2 --threads 1"));
    free(run_well(f, "generate out --prompt What --max_new_tokens 2 --threads 1 --num_beams 2"));
    char *two = run_well(f, "generate out --prompt What --max_new_tokens 2 --min_new_tokens 2 --threads 1 --do_sample "
                            "--num_return_sequences 2");
    assert_non_null(strchr(two, '\n'));
    assert_string_equal(strrchr(two, '\n'), "\n");
    assert_int_equal(run(f, "generate out --prompt What --no_such_flag"), 2);
    assert_int_equal(run(f, "chat out --no_such_flag"), 2);
    assert_int_equal(run(f, "merge out --no_such_flag"), 2);
    assert_int_equal(run(f, "merge nothing --output_dir merged"), 1);
    assert_int_equal(run(f, "export out --no_such_flag"), 2);
    assert_int_equal(run(f, "export nothing --output_file nothing.gguf"), 1);
    free(two);
    json_decref(json), json_decref(beams), json_decref(planned);
    free(streamed), free(lines), free(plan), free(refused);
}

FIXTURE_TEST(test_a_chat_without_a_terminal) {
    make_model(f);
    char *text =
        snug(f,
             "printf 'What colour\\\\\\nis gold?\\n/system Be brief.\\n\"\"\"\\nTell me\\n\\nthe sound\\n\"\"\"\\n"
             "/reset\\n/help\\n\\nWhat is it?\\n/quit\\nnever\\n' |",
             "chat out --max_new_tokens 5 --threads 1 --log_level error", 0);
    assert_contains(text, "a new chat, with this system message");
    assert_contains(text, "a new chat\n");
    assert_contains(text, "/quit ends");
    char *end =
        snug(f, "printf 'What\\n\"\"\"\\nno end' |", "chat out --max_new_tokens 5 --threads 1 --log_level error", 0);
    char *full =
        snug(f, "printf 'What\\n' |", "chat out --max_new_tokens 5 --threads 1 --log_level error > /dev/full", 1);
    char *longer =
        snug(f, "(for i in 1 2 3 4 5 6 7 8 9; do printf 'What colour is it? What colour is it? '; done; echo) |",
             "chat out --max_seq_length 20 --threads 1 --log_level error", 0);
    assert_contains(longer, "raise --max_seq_length, or begin a new chat");
    char *none = snug(f, "", "chat nothing < /dev/null", 1);
    /* Three quotes after a line that continues are text. */
    char *quotes = snug(f, "printf 'What\\\n\"\"\"\n/exit\nnever\n' |",
                        "chat out --max_new_tokens 5 --threads 1 --log_level error", 0);
    free(text), free(end), free(full), free(longer), free(none), free(quotes);
}

/* Reads until text was printed. */
static void await(int master, char *seen, const char *text) {
    size_t length = strlen(seen);
    while (!strstr(seen, text)) {
        const ssize_t got = read(master, seen + length, 4000);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail_msg("the chat ended before \"%s\": %s", text, seen);
        seen[length += (size_t)got] = '\0';
        assert_true(length < (1 << 16) - 4001);
    }
    memmove(seen, strstr(seen, text) + strlen(text), strlen(strstr(seen, text) + strlen(text)) + 1);
}

static void say(int master, const char *text) { assert_int_equal(write(master, text, strlen(text)), strlen(text)); }

/* An interrupt ends the answer, or the line that is typed, and not the program. */
FIXTURE_TEST(test_a_chat_in_a_terminal) {
    int master, status;
    make_model(f);
    char *seen = calloc(1, 1 << 16);
    const pid_t child = forkpty(&master, NULL, NULL, NULL);
    assert_true(child >= 0);
    if (!child) {
        if (chdir(f->folder) != 0) _exit(125);
        execl(program_path(), "snug", "chat", "out", "--threads", "1", "--min_new_tokens", "100000", "--log_level",
              "error", (char *)NULL);
        _exit(127);
    }
    await(master, seen, "> ");
    assert_int_equal(kill(child, SIGINT), 0);
    await(master, seen, "(/quit ends)");
    await(master, seen, "> ");
    say(master, "What colour \\\n");
    await(master, seen, ". ");
    say(master, "is gold?\n");
    await(master, seen, "gold?");
    usleep(100000);
    kill(child, SIGINT); /* while it answers, or after it: the answer has as many tokens as there is memory for */
    await(master, seen, "> ");
    say(master, "/quit\n");
    while (read(master, seen, 4000) > 0) continue;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(master);
    free(seen);
}

TEST_MAIN(NULL, NULL)
