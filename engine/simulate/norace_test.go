// SPDX-License-Identifier: Apache-2.0

//go:build !race

package simulate

// schedules is how many are run by default.
const schedules = 10000
