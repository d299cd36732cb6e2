package main

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// access says where the server is, who this is, and which namespace is meant.
type access struct {
	kubeconfig, name string
}

func (a *access) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "`file` that says where the server is (default: as for kubectl)")
}

func (a *access) addNamespaceTo(flags *pflag.FlagSet) {
	flags.StringVarP(&a.name, "namespace", "n", "", "`namespace` (default: as for kubectl)")
}

func (a *access) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
}

// client returns a client of the server, for any path.
func (a *access) client() (*rest.RESTClient, error) {
	config, err := a.config().ClientConfig()
	if err != nil {
		return nil, orNoServer(err)
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1
	return rest.UnversionedRESTClientFor(config)
}

// namespace is what -n says, or else the kubeconfig.
func (a *access) namespace() (string, error) {
	if a.name != "" {
		return a.name, nil
	}
	namespace, _, err := a.config().Namespace()
	return namespace, orNoServer(err)
}

// orNoServer words what stands in no kubeconfig, since there is none.
func orNoServer(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("no server is named: want --kubeconfig, or KUBECONFIG, to be the file that the server wrote")
	}
	return err
}
