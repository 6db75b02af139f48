{{- define "swerve.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $both .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "swerve.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "swerve.labels" -}}
{{ include "swerve.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "swerve.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- /* A value as TOML. Helm's own toToml writes whole numbers as 8350.0, which Swerve refuses. */ -}}
{{- define "swerve.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- if not $first }}, {{ end }}{{ $key | toJson }} = {{ include "swerve.toml.value" $value }}{{- $first = false -}}
{{- end -}}
{{- end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $index, $value := . -}}{{- if $index }}, {{ end }}{{ include "swerve.toml.value" $value }}{{- end -}} ]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* A map of sections as a TOML file. */ -}}
{{- define "swerve.toml" -}}
{{- range $section, $fields := . }}
[{{ $section }}]
{{- range $name, $value := $fields }}
{{- if not (kindIs "invalid" $value) }}
{{ $name | toJson }} = {{ include "swerve.toml.value" $value }}
{{- end }}
{{- end }}
{{ end -}}
{{- end -}}

{{- define "swerve.names" -}}
{{- $name := include "swerve.fullname" . -}}
{{- list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) | toJson -}}
{{- end -}}

{{- define "swerve.config" -}}
{{- $keys := .Values.apiKeys -}}
{{- if not $keys -}}
{{- fail "apiKeys is empty: the service listens on all addresses and needs a key; `swerve keys new NAME` makes one" -}}
{{- end -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := default dict $config.server -}}
{{- $hosts := concat (include "swerve.names" . | fromJsonArray) (default list $server.hosts) | uniq -}}
{{- $_ := set $config "server" (mergeOverwrite (deepCopy $server) (dict "host" "0.0.0.0" "port" 8350 "hosts" $hosts)) -}}
{{- $_ := set $config "store" (mergeOverwrite (deepCopy (default dict $config.store)) (dict "url" "sqlite:////var/lib/swerve/swerve.db")) -}}
{{- $_ := set $config "security" (mergeOverwrite (deepCopy (default dict $config.security)) (dict "api_keys" $keys)) -}}
{{- include "swerve.toml" $config -}}
{{- end -}}

{{- define "swerve.proxy.config" -}}
{{- $name := printf "%s-proxy" (include "swerve.fullname" .) -}}
{{- $own := deepCopy .Values.proxy.config -}}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- $upstream := required "proxy.upstream names the engine, as in http://opensearch:9200" .Values.proxy.upstream -}}
{{- $set := dict "upstream" $upstream "listen" "0.0.0.0:9280" "metrics" "0.0.0.0:9281" "hosts" (concat $names (default list $own.hosts) | uniq) -}}
{{- $_ := set $set "service" (printf "http://%s:%v" (include "swerve.fullname" .) .Values.service.port) -}}
{{- $_ := required "proxy.keySecret.name names a Secret with an API key of the scope rank" .Values.proxy.keySecret.name -}}
{{- $_ := set $set "api_key_file" "/etc/swerve/secrets/api-key" -}}
{{- if .Values.proxy.authorizationSecret.name -}}
{{- $_ := set $set "authorization_file" "/etc/swerve/secrets/authorization" -}}
{{- end -}}
{{- $config := dict "proxy" (mergeOverwrite $own $set) -}}
{{- range $section := list "server" "policy" "limits" "tracing" "log" -}}
{{- if hasKey $.Values.config $section -}}
{{- $_ := set $config $section (get $.Values.config $section) -}}
{{- end -}}
{{- end -}}
{{- include "swerve.toml" $config -}}
{{- end -}}

{{- define "swerve.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "swerve.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
