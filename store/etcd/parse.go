package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Parse reads where a cluster is from a URL:
//
//	etcd://10.0.0.1:2379,10.0.0.2:2379/prefix
//	etcds://user:password@etcd.example:2379/prefix?cacert=ca.pem&cert=client.pem&key=client-key.pem
//
// etcds is etcd over TLS; its files are those that etcdctl's options of the same names take, and
// what is left out is the machine's. The prefix may be left out.
func Parse(text string) (Options, error) {
	wrong := func(why string) (Options, error) {
		return Options{}, fmt.Errorf("store %q: %s, want etcd://HOST:PORT,HOST:PORT/PREFIX", withoutPassword(text), why)
	}
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "etcd" && scheme != "etcds" {
		return wrong("it is of no known kind")
	}
	// A URL has one host, so all but the first are taken out before it is read as one.
	hosts, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		hosts, path = rest[:i], rest[i:]
	}
	first, others, several := strings.Cut(hosts, ",")
	u, err := url.Parse(scheme + "://" + first + path)
	if err != nil {
		return wrong("it is not a URL")
	}
	options := Options{Endpoints: []string{u.Host}, Prefix: u.Path, Username: u.User.Username()}
	options.Password, _ = u.User.Password()
	if several {
		options.Endpoints = append(options.Endpoints, strings.Split(others, ",")...)
	}
	for _, host := range options.Endpoints {
		if h, port, ok := strings.Cut(host, ":"); !ok || h == "" || port == "" {
			return wrong(fmt.Sprintf("%q is not a host and a port", host))
		}
	}
	query := u.Query()
	for name := range query {
		if name != "cacert" && name != "cert" && name != "key" {
			return wrong(fmt.Sprintf("there is no option %q, there are cacert, cert and key", name))
		}
	}
	if scheme == "etcd" {
		if len(query) > 0 {
			return wrong("certificates are for etcds://")
		}
		return options, nil
	}
	for i, host := range options.Endpoints {
		options.Endpoints[i] = "https://" + host
	}
	options.TLS, err = tlsConfig(query)
	return options, err
}

// withoutPassword is a URL as it may be shown.
func withoutPassword(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	secret, hosts, found := strings.Cut(rest, "@")
	user, _, has := strings.Cut(secret, ":")
	if !ok || !found || !has {
		return text
	}
	return scheme + "://" + user + ":xxxxx@" + hosts
}

func tlsConfig(query url.Values) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := query.Get("cacert"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("store: etcd: cacert: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("store: etcd: cacert: %s has no certificate", file)
		}
	}
	if cert, key := query.Get("cert"), query.Get("key"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("store: etcd: cert and key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
