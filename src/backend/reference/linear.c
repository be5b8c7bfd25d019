/* SPDX-License-Identifier: Apache-2.0 */
/* y [n,N] = x [n,K] w [N,K]^T + b [N] + addend [n,N] */
#include <string.h>

#include "backend/reference/reference.h"

/* A matrix from column `first` on, or its transpose. */
struct operand {
    struct snug_matrix m;
    bool transposed;
    int64_t first;
};

/* Sums are computed in blocks of so many rows and columns: elements are converted once for all of them, and each sum
   has its terms in their order. */
enum { BLOCK = 32 };

static int64_t at_most(int64_t count) { return count < BLOCK ? count : BLOCK; }

static void read_block(struct operand a, int64_t row, int64_t rows, int64_t col, int64_t cols, double (*block)[BLOCK]) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            block[i][j] = a.transposed ? load(a.m, col + j, a.first + row + i) : load(a.m, row + i, a.first + col + j);
}

/* sums [rows,cols] += a [rows,depth] b [depth,cols], from this row of a and this column of b. */
static void multiply(double (*sums)[BLOCK], struct operand a, struct operand b, int64_t row, int64_t rows, int64_t col,
                     int64_t cols, int64_t depth) {
    double left[BLOCK][BLOCK], right[BLOCK][BLOCK];
    for (int64_t k = 0; k < depth; k += BLOCK) {
        const int64_t part = at_most(depth - k);
        read_block(a, row, rows, k, part, left);
        read_block(b, k, part, col, cols, right);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t l = 0; l < part; l++)
                for (int64_t j = 0; j < cols; j++) sums[i][j] += left[i][l] * right[l][j];
    }
}

snug_status snug_reference_linear(struct snug_run *run, const struct snug_op *op) {
    const struct snug_column_range of = op->linear.of_x;
    const struct operand x = {.m = snug_matrix_of(run, op->linear.x), .first = of.first},
                         w = {snug_matrix_of(run, op->linear.w), !op->linear.transposed, 0};
    const struct snug_matrix b = snug_matrix_of(run, op->linear.b), y = snug_matrix_of(run, op->linear.y),
                             addend = snug_matrix_of(run, op->linear.addend);
    double sums[BLOCK][BLOCK];

    for (int64_t i = 0; i < y.rows; i += BLOCK)
        for (int64_t j = 0; j < y.cols; j += BLOCK) {
            const int64_t rows = at_most(y.rows - i), cols = at_most(y.cols - j);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++)
                    sums[r][c] = load_or_0(b, j + c) + (addend.data ? load(addend, i + r, j + c) : 0);
            multiply(sums, x, w, i, rows, j, cols, snug_range_columns(of, x.m.cols));
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++) store(y, i + r, j + c, sums[r][c]);
        }
    return SNUG_OK;
}

/* dx [n,K] = dy [n,N] w [N,K] */
snug_status snug_reference_linear_dx(struct snug_run *run, const struct snug_op *op) {
    const struct operand dy = {.m = snug_matrix_of(run, op->linear_dx.dy)},
                         w = {snug_matrix_of(run, op->linear_dx.w), op->linear_dx.transposed, 0};
    const struct snug_matrix dx = snug_matrix_of(run, op->linear_dx.dx);
    const struct snug_column_range of = op->linear_dx.of_dx;
    const int64_t columns = snug_range_columns(of, dx.cols);
    double sums[BLOCK][BLOCK];

    for (int64_t i = 0; i < dx.rows; i += BLOCK)
        for (int64_t k = 0; k < columns; k += BLOCK) {
            const int64_t rows = at_most(dx.rows - i), cols = at_most(columns - k);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++) sums[r][c] = op->accumulate ? load(dx, i + r, of.first + k + c) : 0;
            multiply(sums, dy, w, i, rows, k, cols, dy.m.cols);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++) store(dx, i + r, of.first + k + c, sums[r][c]);
        }
    return SNUG_OK;
}

/* dw [N,K] += dy [n,N]^T x [n,K]; db [N] += column sums of dy; each is optional */
snug_status snug_reference_linear_dw(struct snug_run *run, const struct snug_op *op) {
    const struct operand dy = {snug_matrix_of(run, op->linear_dw.dy), true, 0},
                         x = {.m = snug_matrix_of(run, op->linear_dw.x), .first = op->linear_dw.of_x.first};
    const struct snug_matrix dw = snug_matrix_of(run, op->linear_dw.dw), db = snug_matrix_of(run, op->linear_dw.db);
    const bool overwrites = snug_run_overwrites(run, op), transposed = op->linear_dw.transposed;
    const int64_t inputs = snug_range_columns(op->linear_dw.of_x, x.m.cols);
    double sums[BLOCK][BLOCK];

    for (int64_t j = 0; dw.data && j < dy.m.cols; j += BLOCK)
        for (int64_t k = 0; k < inputs; k += BLOCK) {
            const int64_t rows = at_most(dy.m.cols - j), cols = at_most(inputs - k);
            memset(sums, 0, sizeof sums);
            multiply(sums, dy, x, j, rows, k, cols, dy.m.rows);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++)
                    add_sum(dw, transposed ? k + c : j + r, transposed ? j + r : k + c, sums[r][c], overwrites);
        }
    for (int64_t j = 0; db.data && j < dy.m.cols; j++) {
        double sum = 0;
        for (int64_t i = 0; i < dy.m.rows; i++) sum += load(dy.m, i, j);
        add_sum(db, 0, j, sum, overwrites);
    }
    return SNUG_OK;
}
