/* SPDX-License-Identifier: Apache-2.0 */
/* An empty libcuda.so.1: the program opens the CUDA plug-in only if a driver is installed. */
int snug_emulated_driver(void);
int snug_emulated_driver(void) { return 0; }
