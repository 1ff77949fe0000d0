package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"

	"helm.sh/helm/v3/pkg/chartutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Of the Prometheus operator's API (monitoring.coreos.com/v1): the fields that the chart uses. Kubernetes' types have
// none of it.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			Authorization *struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

// A file of rules is the spec of a PrometheusRule.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Record      string            `json:"record"`
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// What a rendering has for the Prometheus operator, and the service that it looks for.
type monitoring struct {
	monitor *serviceMonitor
	rule    *prometheusRule
	service *corev1.Service
}

// Whether it was an object for the operator.
func (m *monitoring) read(manifest string) (bool, error) {
	kind := metav1.TypeMeta{}
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil || kind.APIVersion != "monitoring.coreos.com/v1" {
		return false, err
	}
	switch kind.Kind {
	case "ServiceMonitor":
		m.monitor = &serviceMonitor{}
		return true, yaml.UnmarshalStrict([]byte(manifest), m.monitor)
	case "PrometheusRule":
		m.rule = &prometheusRule{}
		return true, yaml.UnmarshalStrict([]byte(manifest), m.rule)
	}
	return false, fmt.Errorf("unknown kind %s", kind.Kind)
}

// Both are there when the values say so, and not else. The monitor finds the service, and the rules are those of the
// file.
func (m *monitoring) check(rules string, values chartutil.Values) error {
	for name, isThere := range map[string]bool{"serviceMonitor": m.monitor != nil, "prometheusRule": m.rule != nil} {
		wanted, _ := values.PathValue("metrics." + name + ".enabled")
		if isThere != (wanted == true) {
			return fmt.Errorf("%s: rendered %v, wanted %v", name, isThere, wanted)
		}
		given, err := values.Table("metrics." + name + ".labels")
		if err != nil {
			// None are given.
			continue
		}
		rendered := map[string]string{}
		switch {
		case name == "serviceMonitor" && isThere:
			rendered = m.monitor.Labels
		case isThere:
			rendered = m.rule.Labels
		}
		for label, value := range given {
			if rendered[label] != value {
				return fmt.Errorf("%s has no label %s: %v", name, label, value)
			}
		}
	}
	if m.monitor != nil {
		if err := m.checkMonitor(values); err != nil {
			return err
		}
	}
	if m.rule == nil {
		return nil
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		return err
	}
	file := ruleFile{}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return err
	}
	if len(file.Groups) == 0 || !reflect.DeepEqual(file, m.rule.Spec) {
		return fmt.Errorf("the PrometheusRule has other rules than %s", rules)
	}
	return nil
}

func (m *monitoring) checkMonitor(values chartutil.Values) error {
	selector, err := metav1.LabelSelectorAsSelector(&m.monitor.Spec.Selector)
	if err != nil {
		return err
	}
	if m.service == nil || !selector.Matches(labels.Set(m.service.Labels)) {
		return fmt.Errorf("the ServiceMonitor finds no service by %v", selector)
	}
	if len(m.monitor.Spec.Endpoints) != 1 {
		return fmt.Errorf("%d endpoints", len(m.monitor.Spec.Endpoints))
	}
	endpoint := m.monitor.Spec.Endpoints[0]
	hasName := func(port corev1.ServicePort) bool { return port.Name == endpoint.Port }
	if endpoint.Path != "/metrics" || !slices.ContainsFunc(m.service.Spec.Ports, hasName) {
		return fmt.Errorf("no %s at a port %q", endpoint.Path, endpoint.Port)
	}
	secret, _ := values.PathValue("admin.tokenSecretName")
	has := endpoint.Authorization != nil
	if name, ok := secret.(string); ok != has || has && endpoint.Authorization.Credentials.Name != name {
		return fmt.Errorf("the secret of the token is %v: %v", secret, endpoint.Authorization)
	}
	return nil
}

// A chart cannot have files that lie outside of it.
func checkCopy(inside, outside string) error {
	a, err := os.ReadFile(inside)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(outside)
	if err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return fmt.Errorf("%s is no copy of %s", inside, outside)
	}
	return nil
}
