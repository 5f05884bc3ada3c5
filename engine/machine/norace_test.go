// SPDX-License-Identifier: Apache-2.0

//go:build !race

package machine

// every mistake is made by TestMutants.
const every = 1
