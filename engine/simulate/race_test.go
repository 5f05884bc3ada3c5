// SPDX-License-Identifier: Apache-2.0

//go:build race

package simulate

// schedules is how many are run by default. The race detector makes each take many times as long, and it has
// nothing to find here: a schedule runs on one goroutine.
const schedules = 1000
