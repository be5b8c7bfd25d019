/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 to be found. */
int snug_emulated_driver(void);
int snug_emulated_driver(void) { return 0; }
