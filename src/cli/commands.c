/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"
#include "cli.h"

const struct cli_command cli_commands[] = {
    {"train", command_train, "fine-tune a model on a text file"},
    {"eval", command_eval, "evaluate a model on labelled data"},
    {"predict", command_predict, "predict the labels of texts"},
    {"embed", command_embed, "write the vectors of texts, or compare pairs"},
    {"generate", command_generate, "answer prompts with a language model"},
    {"chat", command_chat, "talk with a language model in the terminal"},
    {"pull", command_pull, SNUG_CURL ? "bring a model from a Hugging Face hub into the local cache" : NULL},
    {"merge", command_merge, "write the model that a base model and its LoRA adapters are"},
    {"export", command_export, "write a model as a GGUF file, for llama.cpp and Ollama"},
    {"plan", command_plan, "report memory, FLOPs and time of a training, without running it"},
    {"report", command_report, "write an HTML page about trainings: curves, memory, time, settings"},
    {"tokenize", command_tokenize, "print the tokens of texts"},
    {"verify", command_verify, "check snug's invariants on this model and machine"},
    {"bench", command_bench, "measure this machine: snug bench anatomy, snug bench rates"},
    {"gpu", command_gpu, "show the GPUs, their memory, load and processes"},
    {"doctor", command_doctor, "report what this machine has, what is missing, and what a training would use"},
    {"completion", command_completion, "print the completion script of a shell: bash, zsh or fish"},
    {"manual", command_manual, NULL}, /* for the build, which installs the pages */
};
const size_t cli_command_count = sizeof cli_commands / sizeof *cli_commands;
