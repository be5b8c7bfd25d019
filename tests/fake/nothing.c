/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is none of those that it is taken for: it lacks all of their calls. */
__attribute__((visibility("default"))) int snug_fake_nothing(void);

int snug_fake_nothing(void) { return 0; }
