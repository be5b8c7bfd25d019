/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reverse-mode differentiation of a program (plan/differentiate.c visits the forward operations from last to first):
 * the functions with which the descriptors' differentiate() are written.
 *
 * A forward tensor has at most one gradient tensor at a time; one gradient tensor may belong to several forward tensors
 * (both terms of a sum). Each operation takes the gradients of its outputs and gives those of its inputs. If a tensor
 * has several readers, their gradients are added: by the operation itself if it can, else by ADD.
 */
#ifndef SNUG_PROGRAM_TAPE_H
#define SNUG_PROGRAM_TAPE_H

#include "program/program.h"

struct snug_tape {
    struct snug_program *program;
    snug_status status; /* the first failure; later calls do nothing */
    enum snug_phase phase;
    struct snug_op of; /* the forward operation that is being differentiated, */
    size_t index;      /* and its number in the program */
    size_t tensors;    /* forward tensors, number 0 included */
    int32_t *gradient; /* by forward tensor: its gradient so far, or none; only of tensors whose gradient is needed */
    int32_t *bias;     /* by forward tensor: a linear's bias that the operation after it adds, or none */
    bool *needed;      /* by forward tensor: a trainable weight depends on its gradient */
    bool *touched;     /* by weight: an earlier operation of the step writes its gradient */
    int32_t pending;   /* a gradient that will be given to another tensor, too; or none */
};

/* Whether x's gradient is needed; never for none. */
bool snug_tape_needs(const struct snug_tape *tape, int32_t x);
/* The gradient of y, an output of the operation; none if the loss does not depend on y. Afterwards it belongs to the
   operation, which may overwrite it if snug_tape_is_free(). */
int32_t snug_tape_take(struct snug_tape *tape, int32_t y);
bool snug_tape_is_free(const struct snug_tape *tape, int32_t gradient);
/* A new tensor for a gradient of x. */
int32_t snug_tape_new(struct snug_tape *tape, int32_t x);
/* The tensor to which an operation writes x's gradient or, if *accumulate, adds it. Never dy, which the operation reads
   and which may also be x's gradient: both terms of a sum share one. Followed by snug_tape_give() after the operation
   was emitted. */
int32_t snug_tape_target(struct snug_tape *tape, int32_t x, int32_t dy, bool *accumulate);
/* The same for operations each of which writes columns of x's gradient that no other one writes. */
int32_t snug_tape_shared(struct snug_tape *tape, int32_t x, bool *accumulate);
/* snug_tape_target() for an operation with an addend operand that it may overwrite: *addend is x's gradient so far, or
   none; the result is the output tensor, which is x's gradient from now on if that is needed. in_place: a tensor that
   may be overwritten if there is no addend, or none. */
int32_t snug_tape_sum(struct snug_tape *tape, int32_t x, int32_t in_place, int32_t *addend);
/* gradient is x's gradient, or a part of it that is added to the existing one. */
void snug_tape_give(struct snug_tape *tape, int32_t x, int32_t gradient);
/* snug_tape_give() to both terms of a sum. */
void snug_tape_give_both(struct snug_tape *tape, int32_t x, int32_t z, int32_t gradient);
/* Sets the outputs of op that are gradients of weights, of those that are needed, and op->first: all of them are
   overwritten or all added to. If an earlier operation of the step writes some of them, the others are cleared first.
   Returns whether any is needed; the caller emits op. */
struct snug_tape_weight {
    int32_t weight;    /* or none */
    int32_t *gradient; /* the operand of op */
};
bool snug_tape_weights(struct snug_tape *tape, struct snug_op *op, const struct snug_tape_weight weights[], int count);
void snug_tape_emit(struct snug_tape *tape, struct snug_op op);
/* Clears tensor in phase; first: in a step's first micro-batch only. */
void snug_tape_clear(struct snug_tape *tape, int32_t tensor, enum snug_phase phase, bool first);
/* Fails because the derivative is not supported; names the operation and its output y. */
void snug_tape_refuse(struct snug_tape *tape, int32_t y, const char *why);

#endif
