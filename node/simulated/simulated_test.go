package simulated_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/simulated"
)

// TestNodesOfOneNetworkShareNoAddress has two nodes give pods their addresses side by side.
func TestNodesOfOneNetworkShareNoAddress(t *testing.T) {
	var network simulated.Network
	const pods = 300
	addresses := make(chan string)
	for _, r := range []*simulated.Runtime{network.New(nil, simulated.Handlers{}), network.New(nil, simulated.Handlers{})} {
		go func() {
			for i := range pods {
				state, err := r.CreatePod(t.Context(), node.PodConfig{UID: types.UID(fmt.Sprint(i))})
				if err != nil {
					t.Error(err)
				}
				addresses <- state.IP
			}
		}()
	}
	given := map[string]bool{}
	for range 2 * pods {
		given[<-addresses] = true
	}
	if len(given) != 2*pods || !given["127.200.0.1"] || !given["127.200.2.88"] {
		t.Errorf("%d addresses were given to %d pods; want 127.200.0.1 to 127.200.2.88", len(given), 2*pods)
	}
}
