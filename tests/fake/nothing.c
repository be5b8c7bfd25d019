/* SPDX-License-Identifier: Apache-2.0 */
/* A library under another one's name, which lacks all calls that are looked up. */
__attribute__((visibility("default"))) int snug_fake_nothing(void);

int snug_fake_nothing(void) { return 0; }
