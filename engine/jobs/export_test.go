// SPDX-License-Identifier: Apache-2.0

package jobs

// AppendArgs is appendArgs for the fuzz test.
var AppendArgs = appendArgs
