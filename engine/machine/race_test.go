// SPDX-License-Identifier: Apache-2.0

//go:build race

package machine

// every thins out the mistakes that TestMutants makes under the race detector: it finds nothing in a loop of one
// goroutine, and makes it many times slower. Without it, each mistake is made.
const every = 10
